"""The size of pictures, so that their labels can be read at the width of a page, also of a phone's."""

#: In inches. 10 points are 11 pixels on a phone of 420.
WIDTH = 5.2
#: Pixels per inch
DPI = 150
