"""Email: a mailbox watched over IMAP, answered over SMTP; a thread is a conversation."""
