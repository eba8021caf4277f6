"""One file per page; each has a function `show`. (Streamlit would run files of a folder named pages by itself.)"""
