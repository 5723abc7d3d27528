"""Truth inference: from annotations to labels."""
