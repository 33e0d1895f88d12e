"""An operator as a value: what it does, the contracts of its ends, how it is keyed and scaled."""
