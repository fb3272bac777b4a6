"""What `stty sane` does, without stty."""

import termios

INPUT_ON = termios.BRKINT | termios.ICRNL | termios.IMAXBEL
INPUT_OFF = termios.IGNBRK | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.IXOFF
OUTPUT_ON = termios.OPOST | termios.ONLCR
OUTPUT_OFF = termios.OCRNL | termios.ONOCR | termios.ONLRET
LOCAL_ON = termios.ICANON | termios.ISIG | termios.IEXTEN | termios.ECHO | termios.ECHOE
LOCAL_ON |= termios.ECHOK | termios.ECHOCTL | termios.ECHOKE
LOCAL_OFF = termios.ECHONL | termios.NOFLSH | termios.TOSTOP
KEYS = {
    termios.VINTR: b"\x03",
    termios.VQUIT: b"\x1c",
    termios.VERASE: b"\x7f",
    termios.VKILL: b"\x15",
    termios.VEOF: b"\x04",
    termios.VSTART: b"\x11",
    termios.VSTOP: b"\x13",
    termios.VSUSP: b"\x1a",
    termios.VREPRINT: b"\x12",
    termios.VWERASE: b"\x17",
    termios.VLNEXT: b"\x16",
}


def make_sane(terminal: int) -> None:
    """Lines, echo and signals as a shell expects them; what was typed is dropped."""
    termios.tcflow(terminal, termios.TCOON)  # a Ctrl-S would let us wait
    settings = termios.tcgetattr(terminal)
    settings[0] = settings[0] & ~INPUT_OFF | INPUT_ON | termios.IXON
    settings[1] = settings[1] & ~OUTPUT_OFF | OUTPUT_ON
    settings[2] |= termios.CREAD
    settings[3] = settings[3] & ~LOCAL_OFF | LOCAL_ON
    for key, byte in KEYS.items():
        settings[6][key] = byte
    termios.tcsetattr(terminal, termios.TCSAFLUSH, settings)
