"""`python -m tests.bench answers`: how well questions are answered from documents, beside plain search."""
