from ..rigid.quick import quick_compilation

__all__ = ["quick_compilation"]
