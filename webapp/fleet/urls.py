"""Addresses of the fleet."""

from django.urls import path

from webapp.fleet import views

urlpatterns = [path("", views.fleet, name="fleet")]
