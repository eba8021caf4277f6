"""The tour of whence: one section per instrument, run in small and shown on one page (`whence demo`).

section    what a section consists of: requirements, progress, content
published  tables of `results/`, shown beside the live ones
arena leak features fields   the sections, each from a context to its content
checkpoint/                  the field model that the last section shows; its training takes longer than the tour
tour       runs the sections one after the other
page       the page; page.html and page.css are its template and its style
"""
