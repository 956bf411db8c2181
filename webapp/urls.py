"""The site's addresses."""

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from webapp import views

handler400 = "webapp.views.bad_request"

sign_in = LoginView.as_view(
    template_name="accounts/login.html",
    redirect_authenticated_user=True,
    extra_context={"demo": settings.DEMO},
)

urlpatterns = [
    path("", views.home, name="home"),
    path("login/", sign_in, name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("ops/", include("webapp.ops.urls")),
    path("", include("webapp.runs.urls")),
    path("library/", include("webapp.library.urls")),
    path("fleet/", include("webapp.fleet.urls")),
    path("admin/", admin.site.urls),
]
