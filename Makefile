.PHONY: check lint types test

check: lint types test

lint:
	ruff check .
	ruff format --check .

types:
	ty check vineenv algorithms envs rewards benchmarks

test:
	python -m pytest -n 2
