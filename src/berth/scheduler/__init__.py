"""The scheduler: plan, a pure function of a view and a request; filters and weighers, one small file each."""
