"""Addresses of the library."""

from django.urls import path

from webapp.library import views

urlpatterns = [
    path("", views.kernel_list, name="library"),
    path("<int:pk>/", views.kernel_page, name="kernel"),
    path("<int:pk>/kernel.py", views.kernel_source, name="kernel-source"),
]
