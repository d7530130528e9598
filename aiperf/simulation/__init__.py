"""The real master on a virtual clock, before groups that are only modelled."""
