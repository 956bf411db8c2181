"""Writes to users and teams."""

from django.db import transaction

from webapp.accounts.models import Membership, Role, Team, User


@transaction.atomic
def ensure_user_with_team(username: str, password: str | None = None) -> User:
    """The user of this name in a team of their own; made where missing. A given password is set."""
    user, created = User.objects.get_or_create(username=username)
    if password is not None and not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    elif created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    ensure_team(user)
    return user


def ensure_team(user: User) -> Team:
    """A team that the user may write in; a personal one is made where there is none."""
    membership = user.memberships.exclude(role=Role.VIEWER).select_related("team").order_by("pk").first()
    if membership:
        return membership.team
    team, _ = Team.objects.get_or_create(slug=f"u{user.pk}", defaults={"name": user.username})
    Membership.objects.get_or_create(team=team, user=user, defaults={"role": Role.ADMIN})
    return team
