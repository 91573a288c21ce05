"""DeviceArray: values in a device's memory, with the part of NumPy's interface that the ring uses."""

from typing import Any

import numpy as np
import torch as th


class DeviceArray:
    """
    A tensor that the ring reads and writes as if it were an array. Indices are NumPy's and are sent to the device. Values are
    copied to the host by ``np.asarray`` only.
    """

    def __init__(self, tensor: th.Tensor):
        self.tensor = tensor

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: Any, device: th.device) -> "DeviceArray":
        """:param dtype: NumPy's"""
        return cls(th.zeros(shape, dtype=th.from_numpy(np.zeros(0, dtype)).dtype, device=device))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        host = self.tensor.cpu().numpy()
        return host if dtype is None else host.astype(dtype)

    def __len__(self) -> int:
        return len(self.tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        """:return: As of an array"""
        return tuple(self.tensor.shape)

    @property
    def dtype(self) -> np.dtype:
        """:return: NumPy's"""
        return th.zeros(0, dtype=self.tensor.dtype).numpy().dtype

    def __getitem__(self, index: Any) -> "DeviceArray":
        return DeviceArray(self.tensor[self._index(index)])

    def __setitem__(self, index: Any, value: "DeviceArray | np.ndarray | float") -> None:
        if isinstance(value, DeviceArray):
            self.tensor[self._index(index)] = value.tensor
        elif isinstance(value, np.ndarray):
            # In the array's own type before it is sent, as NumPy casts on assignment.
            sent = th.from_numpy(np.ascontiguousarray(value, self.dtype))
            self.tensor[self._index(index)] = sent.to(self.tensor.device)
        else:
            self.tensor[self._index(index)] = value

    def _index(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return tuple(map(self._index, index))
        if isinstance(index, list):
            index = np.array(index, dtype=np.int64)
        if not isinstance(index, np.ndarray):
            return index
        # The places of a mask are found on the host: on the device, their number would have to be waited for.
        places = index.nonzero()[0] if index.dtype == bool else index.astype(np.int64)
        return th.from_numpy(places).to(self.tensor.device)

    def take(self, index: np.ndarray, axis: int, mode: str = "raise") -> "DeviceArray":
        """:return: As of an array, for indices that are not negative"""
        if mode == "wrap":
            index = index % self.shape[axis]
        return self[(slice(None),) * axis + (index,)]

    def reshape(self, *shape: int) -> "DeviceArray":
        """:return: A view"""
        return DeviceArray(self.tensor.view(*shape))

    def copy(self) -> "DeviceArray":
        """:return: A copy on the device"""
        return DeviceArray(self.tensor.clone())

    def empty_like(self) -> "DeviceArray":
        """:return: Memory on the device for as many values"""
        return DeviceArray(th.empty_like(self.tensor))

    def doubled(self) -> "DeviceArray":
        """:return: A copy that is followed by as many zeros"""
        return DeviceArray(th.cat([self.tensor, th.zeros_like(self.tensor)]))
