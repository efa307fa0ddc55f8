"""What carries orders out on a host: one file per kind of hypervisor, and ``driver`` says what each must
do."""
