"""A small stand-in for the parts of LMCache that the plug-in meets.

Signatures and rules are those of its source of 2026: native_connector_l2_adapter.py of commit 0b43a455, native_plugin_l2_adapter.py of
commit 68c638a6, connector_pybind_utils.h of commit a4ef094e.
"""
