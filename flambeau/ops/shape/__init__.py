"""Operators that only move elements, reinterpret them or change their layout in memory."""
