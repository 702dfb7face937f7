.PHONY: check test
check:
	ruff check .
	ruff format --check .
	ty check vineenv algorithms envs rewards
	$(MAKE) test

test:
	python -m pytest
