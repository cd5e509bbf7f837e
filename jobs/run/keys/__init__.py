"""The distinct keys of a day: which have stored answers, which are called first, which another run
calls.
"""
