"""Report pages: the shell, tables, figures and export. Independent of the instruments.

html      templates with autoescape; tables, lists, badges
shell     a whole page: one self-contained file
figures   colours, axes, learning curves
runs      comparison of individual runs
export    a screenshot of a page
"""
