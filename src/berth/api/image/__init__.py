"""/image/v2: what servers are made from, in the words of OpenStack Glance's API.

api.py           the routes, the schemas that clients read, and what of Glance is not offered
images.py        images: lists, changes, tags, activation
fields.py        their fields: how they are written, what each may be, and patches
contents.py      their contents, in and out, and what becomes of an upload that fails
disk_formats.py  which contents are refused
members.py       projects that they are shared with
"""
