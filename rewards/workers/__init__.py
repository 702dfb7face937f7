"""Killable processes that compare answers, so that no answer can hurt or stop the caller."""
