import os
from types import SimpleNamespace

default_config = SimpleNamespace(
    base_url=os.environ["BIOMNI_CUSTOM_BASE_URL"], api_key=os.environ["BIOMNI_CUSTOM_API_KEY"]
)
