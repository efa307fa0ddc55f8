"""/image/v2: what servers are made from, in the words of OpenStack Glance's API.

It keeps what images say, not what is in them: agents have their own ways to come by an image. Of content that
is uploaded the size and the digests are kept, and with it the image becomes usable.
"""
