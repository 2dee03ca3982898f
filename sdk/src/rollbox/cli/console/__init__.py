"""The console on this machine: a server on 127.0.0.1 that shows a browser the pages of the platform.

The API key stays in this process. What the browser has is a cookie of this server alone, in the place of one at the
gateway's address: there servers in sandboxes give pages too, and a browser would let those read the console with it.
"""
