"""Reading and comparing mathematical answers; knows nothing of responses, rewards or processes."""
