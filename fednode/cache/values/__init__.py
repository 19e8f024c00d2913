"""Values as bytes: what can be stored, and how what is handed out is kept apart from what is stored."""
