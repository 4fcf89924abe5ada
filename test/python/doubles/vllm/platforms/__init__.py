"""A double of the framework's package: a device of one kind."""


class _Platform:
    device_name = "cuda"
    device_type = "cuda"

    def is_fp8_fnuz(self) -> bool:
        return False


current_platform = _Platform()
