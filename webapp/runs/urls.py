"""Addresses of runs and candidates."""

from django.urls import path

from webapp.runs import views

urlpatterns = [
    path("runs/", views.run_list, name="runs"),
    path("runs/<int:pk>/", views.run_page, name="run"),
    path("runs/<int:pk>/live/", views.run_live, name="run-live"),
    path("runs/<int:pk>/cancel/", views.run_cancel, name="run-cancel"),
    path("runs/<int:pk>/retry/", views.run_retry, name="run-retry"),
    path("candidates/<int:pk>/", views.candidate_page, name="candidate"),
    path("candidates/<int:pk>/source.py", views.candidate_source, name="candidate-source"),
]
