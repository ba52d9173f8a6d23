from .quick import quick_compilation

__all__ = ["quick_compilation"]
