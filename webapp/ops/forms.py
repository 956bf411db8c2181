"""Uploading an op and starting a run."""

from pathlib import PurePath
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

from services.contracts import TARGETS, TolerancePolicy
from webapp.ops.services import BadSource, check_size, decode_source
from webapp.runs.models import Strategy
from webapp.runs.services.steps import MAX_TURNS
from webapp.settings import ENV

POLICIES = {
    TolerancePolicy.STRICT: ("Strict", "The kernel's error may be at most 8 times what eager PyTorch itself makes."),
    TolerancePolicy.STANDARD: (
        "Standard",
        "The usual tolerance of the data type (1e-4 for float32), with the ratio to eager's own error shown.",
    ),
    TolerancePolicy.RELAXED: ("Relaxed", "Lower precision inside is allowed: tf32 or bf16 products in a float32 op."),
}
STRATEGIES = {
    Strategy.SEED_THEN_MODEL: "Compiler seed, then model",
    Strategy.SEED: "Compiler seed only",
    Strategy.MODEL: "Model only",
}
TARGET_CHOICES = [(spec.name, spec.title) for spec in TARGETS.values()]


class OpForm(forms.Form):
    """An op as pasted text or as one file."""

    name = forms.CharField(
        max_length=120,
        required=False,
        help_text="Left empty, the file's name is taken.",
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    source = forms.CharField(
        required=False,
        strip=False,
        label="Source",
        widget=forms.Textarea(
            attrs={
                "class": "form-control source",
                "spellcheck": "false",
                "autocapitalize": "off",
                "rows": 24,
                "data-editor": "",
            }
        ),
    )
    file = forms.FileField(
        required=False,
        allow_empty_file=True,
        max_length=None,
        label="Or one .py file",
        widget=forms.FileInput(attrs={"class": "form-control"}),
    )
    policy = forms.ChoiceField(
        choices=[(policy.value, POLICIES[policy][0]) for policy in TolerancePolicy],
        initial=TolerancePolicy.STANDARD.value,
        label="Tolerance",
    )
    target = forms.ChoiceField(
        choices=TARGET_CHOICES,
        label="Target GPU",
        initial=ENV.default_target,
        widget=forms.Select(attrs={"class": "form-select"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Django's own NUL check would speak of "null characters": decode_source says what to do.
        self.fields["source"].validators = []

    def clean(self) -> dict[str, Any]:
        """Exactly one source, as text; errors stand beside the field that caused them."""
        data = super().clean() or {}
        pasted, file = data.get("source", ""), data.get("file")
        if file is not None and pasted.strip():
            self.add_error(
                "file", "Both a file and pasted text were given. Empty one of them; the pasted text is kept below."
            )
        elif file is not None:
            self._take_file(data, file)
        else:
            self._take_text(data, pasted)
        if not data.get("name") and "name" not in self.errors:
            self.add_error("name", "Give the op a name.")
        return data

    def _take_file(self, data: dict[str, Any], file: "UploadedFile[bytes]") -> None:
        data["name"] = data.get("name") or PurePath(file.name or "").stem[:120]
        try:
            check_size(file.size or 0)
            data["source"] = decode_source(file.read())
        except BadSource as error:
            self.add_error("file", str(error))

    def _take_text(self, data: dict[str, Any], text: str) -> None:
        try:
            data["source"] = decode_source(text.encode())
        except BadSource as error:
            self.add_error("source", str(error))

    def keep_text(self) -> None:
        """Before the form is shown again: the text of a readable file goes into the editor."""
        text = self.cleaned_data.get("source")
        if text and not self.data.get("source"):
            self.data = {
                **{key: self.data[key] for key in self.data},
                "source": text,
                "name": self.cleaned_data.get("name", ""),
            }


class RunForm(forms.Form):
    """What a run may spend, and for which GPU."""

    strategy = forms.ChoiceField(choices=[*STRATEGIES.items()], widget=forms.Select(attrs={"class": "form-select"}))
    max_turns = forms.IntegerField(
        min_value=1,
        max_value=MAX_TURNS,
        initial=4,
        label="Turns",
        widget=forms.NumberInput(attrs={"class": "form-control"}),
    )
    target = forms.ChoiceField(
        choices=TARGET_CHOICES, label="Target GPU", widget=forms.Select(attrs={"class": "form-select"})
    )
