"""From cells to blocks: how runs are cut, what an allocation must offer, how long it takes, what it can show."""
