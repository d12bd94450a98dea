"""`noesium chat`: a conversation on a terminal."""
