"""What tests with real engines share. Tests run in the engine's environment, with `test/engines` and `build/python` on the path."""
