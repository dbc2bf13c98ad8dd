"""The default screen of `specplan optimize` and `specplan explain`, made from an explanation."""
