"""/identity/v3: logging in and finding services, in the words of OpenStack Keystone's API.

It stands in for a Keystone where there is none. Users and projects are those of the tokens file, known by
their names alone: an id is a name. There is one domain, "default", and one region. Nothing can be changed
here.
"""
