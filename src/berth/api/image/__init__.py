"""/image/v2: what servers are made from, in the words of OpenStack Glance's API.

It keeps the fields of images, not their content: agents get images in their own way. Of an uploaded file its
size and digests are kept, and with it the image becomes usable.
"""
