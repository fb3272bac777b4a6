"""A QR code for terminals: two rows of it in each line, dark on light. Pure."""

import io


def qr_text(text: str) -> str:
    """The lines that show it; each ends with a line break."""
    import segno  # nobody else needs it

    shown = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(shown, compact=True)
    return shown.getvalue()
