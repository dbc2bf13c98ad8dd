"""Why a plan was chosen: as data for JSON, and in words."""
