"""The web's own worker: `celery -A webapp.celery worker -Q runs` and `celery -A webapp.celery beat`."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

import django
from django.conf import settings

from services.broker import app

django.setup()
app.conf.beat_schedule = settings.BEAT_SCHEDULE
app.autodiscover_tasks(["webapp.ops", "webapp.runs", "webapp.fleet"], force=True)
