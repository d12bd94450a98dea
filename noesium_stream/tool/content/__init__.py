"""Large results, set aside by hash, and the tool that reads them."""
