"""What every test gets."""

import os
import tempfile

os.environ.setdefault("SECRET_KEY", "only-for-tests")
os.environ["WARPSMITH_HOME"] = tempfile.mkdtemp(prefix="warpsmith-test-")
