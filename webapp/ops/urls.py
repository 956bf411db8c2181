"""Addresses of ops."""

from django.urls import path

from webapp.ops import views

urlpatterns = [
    path("", views.op_list, name="ops"),
    path("new/", views.op_new, name="op-new"),
    path("<int:pk>/", views.op_page, name="op"),
    path("<int:pk>/live/", views.op_live, name="op-live"),
    path("<int:pk>/optimise/", views.op_optimise, name="op-optimise"),
    path("<int:pk>/screen/", views.op_screen, name="op-screen"),
    path("<int:pk>/source.py", views.op_source, name="op-source"),
]
