"""The screens: the chat, and the dialogs that are laid over it."""
