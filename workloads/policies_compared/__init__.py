"""All policies on the same loads under the same costs: which one should a pipeline take?"""
