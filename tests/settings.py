"""Django's settings for tests: a state folder and a secret of their own, so that they never touch var/."""

import atexit
import os
import shutil
import tempfile

if "WARPSMITH_HOME" not in os.environ:
    os.environ["WARPSMITH_HOME"] = tempfile.mkdtemp(prefix="warpsmith-tests-")
    atexit.register(shutil.rmtree, os.environ["WARPSMITH_HOME"], ignore_errors=True)
os.environ.setdefault("SECRET_KEY", "known to everyone, for tests only")

from webapp.settings import *

# The manifest's hashed names exist only after collectstatic.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_ROOT.mkdir(exist_ok=True)  # noqa: F405
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# Programs that a test starts are the real ones, with the state folder and secret from above.
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
