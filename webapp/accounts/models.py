"""Users, teams and who belongs where."""

from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """A person who signs in."""


class Role(models.TextChoices):
    """What a member may do: read; also upload and run; also publish; also administer."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    MAINTAINER = "maintainer", "Maintainer"
    ADMIN = "admin", "Admin"


WRITERS = frozenset({Role.MEMBER, Role.MAINTAINER, Role.ADMIN})


class Team(models.Model):
    """Owns ops, runs and kernels; its members see them, nobody else does."""

    name = models.CharField(max_length=80)
    slug = models.SlugField(unique=True)
    members: "models.ManyToManyField[User, Membership]" = models.ManyToManyField(
        User, through="Membership", related_name="teams"
    )

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """One user's role in one team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role, default=Role.MEMBER)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}: {self.role}"
