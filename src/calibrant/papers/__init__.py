"""The papers that Calibrant implements: their published tables as data.

>>> from calibrant.papers import PUBLISHED, published
>>> list(PUBLISHED)
['wang2021', 'singh2021', 'mukhoti2020', 'karandikar2021']
>>> published("singh2021", "table4").num_rows
8
"""

from calibrant.papers._published import PUBLISHED, TableInfo, citation, published

__all__ = ["PUBLISHED", "TableInfo", "citation", "published"]
