"""Pages, whatever they are about: the shell, tables, figures, files for other programs. Knows no instrument.

html      templates with autoescape; tables, lists, badges
shell     a whole page: one file that asks the network for nothing
figures   colours, axes, learning curves
runs      any runs side by side
export    a page as a picture
"""
