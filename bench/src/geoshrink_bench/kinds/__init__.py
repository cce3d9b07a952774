"""What `geoshrink compare` can score and show besides pictures: one file per kind."""
