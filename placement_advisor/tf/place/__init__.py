"""A placement -> a step that runs so in a session, and the proof of where its ops ran."""
